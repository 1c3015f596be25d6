"""Files of a new project, which `ensemble init` copies; nothing imports them."""
