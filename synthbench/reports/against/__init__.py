"""What reports compare with: published tables, peers and predictions of the literature."""
