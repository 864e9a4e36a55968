// Package hostagent opens further subflows of a host's large MPTCP connections, and gives their
// SYNs the mark by which the controller places them (package subflows). Neither the kernel nor
// applications need changes, and the agent serves every application that uses MPTCP.
//
// The agent asks the kernel by sock_diag how many bytes connections have carried. It opens and ends
// subflows through the user-space path manager, a family of generic netlink (mptcp_pm). A
// connection gets a further subflow when it has carried a threshold of bytes, another at twice
// that, and so on. A subflow that then carries next to nothing is ended, and its connection gets no
// more. The agent's own nftables table sets the mark, only on SYNs with the option MP_JOIN.
//
// When the agent ends, it undoes its changes of the host: it removes the table, and restores the
// path manager of new connections. It does not change connections except by opening subflows and
// ending those that it has opened.
//
// While connections carry little, the agent costs next to nothing. No connection can have carried
// more bytes than the whole host. As long as the host has carried fewer bytes than any connection
// needs for its next subflow, the agent does not ask for connections.
//
// Start reading at [Agent], which contains the loop. The pure functions of policy.go decide. The
// functions of diag.go, octets.go and pm.go talk to the kernel, and those of marks.go to nftables.
package hostagent
