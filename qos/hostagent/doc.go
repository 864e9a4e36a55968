// Package hostagent opens further subflows of a host's large MPTCP connections, and gives their
// SYNs the mark by which the controller places them (package subflow). The kernel stays as it
// is, and so do applications: whatever uses MPTCP is served.
//
// The agent asks the kernel by sock_diag what connections have carried, and opens and ends
// subflows by the path manager in user space, a family of generic netlink (mptcp_pm). A
// connection gets a further subflow when it has carried a threshold of bytes, another at twice
// that, and so on. One that then carries next to nothing is ended, and the connection left as it
// is. The mark is set by a table of nftables of its own, on SYNs with the option MP_JOIN alone.
//
// What it changes of the host is taken back when it ends: the table, and which path manager new
// connections get. It touches no connection but by opening subflows and ending those that it has
// opened.
//
// Beside connections that carry little it costs next to nothing: no connection has carried
// more than the whole host, and as long as that is less than the nearest of them lacks until
// its next subflow, none is asked for.
//
// [Agent] is the loop, the functions of policy.go decide, pure; diag.go, octets.go and pm.go speak to the
// kernel, marks.go to nftables.
package hostagent
