// Package testbed starts programs in a lab's network and measures them: controller and agents of
// this binary, a web server, curl, iperf3, haproxy. Experiments and the demos are built on it.
//
// Everything here is a real program in a process of its own. The caller stops what it has started;
// nothing outlives it.
//
// Start reading at Deploy, and at Daemon.
package testbed
