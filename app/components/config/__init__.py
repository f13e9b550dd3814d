"""Settings: tables, the matrix of the bootstrap flag, values of forms, replicas set aside. Pure."""
