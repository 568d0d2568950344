//! State behind one trait: typed resources, revisions, expiry and watch.
