"""Files that survive a crash, documents with their own checksum, and the folders of repositories."""
