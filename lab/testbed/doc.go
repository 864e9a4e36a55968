// Package testbed starts programs in a lab's network and measures them: controller and agents of
// this binary, a web server, curl, iperf3, haproxy. Experiments and the demos are built on it.
//
// The programs are real ones, each in a process of its own. Some clients, servers and devices are
// simulated in the caller's process. The caller stops what it has started; nothing outlives it.
//
// Start reading at Deploy, and at Daemon.
package testbed
