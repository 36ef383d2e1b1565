"""Train a network: built objects in, measurements out. It knows no optimizer, data set or network by name."""
