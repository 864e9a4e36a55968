// Package network is the core of the controller: sessions with switches, the packet-in chain, the
// topology, hosts and paths, the rules that services declare, and default forwarding.
//
// A service is a Handler in the chain and an Owner of rules:
//
//	n, err := network.New(network.Config{Listen: []string{"127.0.0.1:6653"}})
//	n.AddHandler(100, handler)
//	owner, err := n.Owner("sos", network.OwnerOptions{})
//	go n.Run(ctx)
//
// The chain of a switch runs on that switch's own goroutine. A handler that has to wait holds the
// packet (PacketIn.Hold) and returns Stop. The work continues elsewhere and ends with
// Held.Release, Held.Forward or Held.Drop.
//
// Start reading at network.go and assemble.go, which name all parts. The other files are grouped
// by their first word: session (one connection to a switch), packetin (the chain), rules, topology,
// hosts, forward (default forwarding), event, telemetry, trace and examine (looking for faults). The
// files of rules bring the changes of the ledger, which records what owners have declared, to the
// switches.
package network
