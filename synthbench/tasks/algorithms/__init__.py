"""Algorithm tasks: sorting, addition, counting, comparison, continuing patterns and finding neighbours."""
