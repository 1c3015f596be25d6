"""Files that survive a crash, and documents that carry their own checksum."""
