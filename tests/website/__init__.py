"""The site of the documentation, looked at in a browser without a window."""
