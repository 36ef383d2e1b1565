"""From records to tables, figures, verdicts and a page. Reports only read: they never train."""
