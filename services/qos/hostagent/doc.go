// Package hostagent opens further subflows of a host's large MPTCP connections, and gives
// their SYNs the mark by which the controller places them (package subflow). Neither the
// kernel nor applications need changes: every application that uses MPTCP is served.
//
// The agent asks the kernel by sock_diag how much connections have carried. It opens and
// ends subflows through the user-space path manager, a family of generic netlink
// (mptcp_pm). A connection gets a further subflow when it has carried a threshold of bytes,
// another at twice that, and so on. A subflow that then carries next to nothing is ended,
// and its connection gets no more. The agent's own nftables table sets the mark, on SYNs
// with the option MP_JOIN only.
//
// When the agent ends, it undoes its changes of the host: the table, and the path manager
// of new connections. It does not touch connections except by opening subflows and ending
// those that it has opened.
//
// While connections carry little, the agent costs next to nothing. No connection has
// carried more than the whole host. As long as that is less than any connection needs until
// its next subflow, the agent does not ask for connections.
//
// Start reading at [Agent], which is the loop. The pure functions of policy.go decide;
// diag.go, octets.go and pm.go talk to the kernel, and marks.go to nftables.
package hostagent
