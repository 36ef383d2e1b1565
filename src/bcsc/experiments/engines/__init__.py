"""Where the runs of a campaign are carried out."""
