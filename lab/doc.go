// Package lab builds whole networks on one Linux machine: hosts and routers in network namespaces,
// Open vSwitch switches with their own pairs of daemons, and links with rate, delay, jitter, loss
// and queue.
//
// A Topology is plain data, loaded from YAML or made by a generator. Up makes it live and returns a
// Lab; Down removes everything again. Down also works when the process that built the lab has
// ended, because Up records what it makes before it makes it. New does both for a Go test. While a
// lab is up its links can be changed, plugged in and out, and moved from one switch to another.
//
// Every lab has a control network, 198.18.0.0/16, in a namespace of its own: controllers run there,
// and each switch and each agent has an interface in it. Several labs can be up at once: they share
// nothing but some sysctls of the machine, which are changed while a lab is up.
//
// Start reading at Topology, then at Up.
package lab
