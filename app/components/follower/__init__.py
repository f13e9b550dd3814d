"""Parts of the pages about followers: phases, catching up, how deep local data reaches. Pure."""
