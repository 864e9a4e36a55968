// Package replicas makes the name services of several domains act as one. The record of a name is
// kept by the services of K domains, which are computed from the name alone, as in DMap (Vu et al.,
// ICDCS 2012).
//
// A host writes its names' records to the service of its own domain, and looks other names up
// there. The service sends new records to the K domains of the name ([Replicas.Written]). For a
// name that it does not keep, the service asks the nearest of the name's K domains
// ([Replicas.Lookup]), two at a time; it caches their answers for half a minute, and they notify it
// of changes. Nobody has to trust a domain: records are signed by the owners of the names, and of
// two records of a name the newer one counts.
//
// A domain receives what it has missed when it returns: from the memory of the others or, if these
// have restarted, from the times at which their records were written.
package replicas
