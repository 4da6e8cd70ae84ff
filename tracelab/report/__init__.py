"""Reports: data, building, loading and views."""
