// Package network is the core of the controller: sessions with switches, the
// packet-in chain, the topology, hosts and paths, and the ledger of the rules
// that services declare.
//
// A service is a Handler in the chain and an Owner of rules:
//
//	n, err := network.New(network.Config{Listen: []string{"127.0.0.1:6653"}})
//	n.AddHandler(100, handler)
//	owner, err := n.Owner("sos", network.OwnerOptions{})
//	go n.Run(ctx)
//
// The chain of a switch runs on that switch's own goroutine. A handler that has
// to wait holds the packet (PacketIn.Hold) and returns Stop; the work goes on
// elsewhere and ends with Held.Release, Held.Forward or Held.Drop.
package network
