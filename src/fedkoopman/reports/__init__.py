"""Reports: results rendered as files, figures and tables. Rendering computes nothing."""
