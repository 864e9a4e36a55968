// Package testbed starts the programs that play in a lab's network and measures
// them: controller and agents of this binary, a web server, curl, iperf3,
// haproxy. Experiments and the demo stand on it.
//
// Everything here is a real program in a process of its own. What has been
// started is stopped by its owner; nothing outlives it.
package testbed
