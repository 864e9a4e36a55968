// Package replicas has the name services of several domains be one: where a name is, is kept by the
// services of K domains, which follow from the name alone, as in DMap (Vu et al., ICDCS 2012).
//
// Everybody tells the service of his own domain where his name is, and asks that of others' names. It
// passes what is new on to the K domains of the name ([Replicas.Written]), and asks the nearest of these
// where a name is that it does not keep itself ([Replicas.Lookup]), two at a time; what they answer is
// kept for half a minute, and they tell when it does not hold any more. Nobody has to trust a domain:
// records are signed by the owners of the names, and of two the newer one counts.
//
// What a domain misses while it is away is passed on when it is back: from the memory of the others, and
// if these start anew, from the times at which their records were written.
package replicas
