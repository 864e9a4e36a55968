// Package lab builds whole networks on one Linux machine: hosts and routers in
// network namespaces, Open vSwitch switches with a daemon pair of their own, and
// links with rate, delay, jitter, loss and queue.
//
// A Topology is plain data, loaded from YAML or made by a generator. Up makes it
// live and returns a Lab; Down removes everything again, also when the process
// that built it is gone, because what a lab makes is recorded before it is made.
// New does both for a Go test. While a lab is up its links can be changed, plugged
// in and out, and moved from one switch to another.
//
// Every lab has a control network of its own, 198.18.0.0/16, in a namespace of
// its own: controllers run there, and each switch and each agent has an interface
// in it. Labs share nothing but some sysctls of the machine, which are theirs while one is
// up, so several can be up at once.
package lab
