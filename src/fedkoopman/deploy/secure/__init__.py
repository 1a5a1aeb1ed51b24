"""Secure aggregation: the server learns the sum of the sites' vectors, and nothing else of them.

The protocol of Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine
Learning" (2017), against a server that is curious but follows the rules. `masks` has what it is
made of, `site_session` a site's part, `server_session` the server's; both are state machines that
know no network. Vectors are words of 64 bits (`federation.quantised`), added modulo 2⁶⁴.

    keys      every site makes two new key pairs and a seed
    shares    it splits the secret half of one pair, and the seed, into shares, one for every site,
              encrypted so that the server, which passes them on, cannot read them
    masked    it sends its vector plus a mask from its seed, plus a mask for every pair of sites,
              which one of the two adds and the other subtracts
    unmask    from a majority's shares the server finds the seeds of those who sent their vectors,
              and the keys of those who did not, and takes the masks off the sum

A site may vanish after any step, as long as a majority of those that were asked is left.

**The safety rule of a site**: in one session it sends one masked vector, and answers one unmasking:
never the share of a site's seed and the share of its key. Since a majority is needed for each, no
server can get both of anybody, and so no single vector. Session secrets are never on a disk.
"""
