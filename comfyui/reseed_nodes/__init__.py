"""The nodes, one module each, and what they share."""
