"""Study and site files: schema, rules, reference, and what they name as objects."""
