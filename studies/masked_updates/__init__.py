"""Is anything left of the mask at one gradient per step? A language model on Shakespeare, all arms at their best."""
