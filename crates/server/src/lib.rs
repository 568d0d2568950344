//! The services: authority, proxy and agent behind one listener.
