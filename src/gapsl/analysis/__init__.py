"""What people look at: progress, tables, plots."""
