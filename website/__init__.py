"""What `make docs` does beyond mkdocs: pages made from the package, pictures, links that leave docs/."""
