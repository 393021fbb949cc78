"""Keys that only administrators use: settings, log folders, ACLs, partitions page by page."""
