package sos

import (
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// Held is a packet that waits for a decision, such as a *network.Held.
type Held interface {
	// Output sends the packet by the given actions.
	Output([]openflow.Action) error
	// Forward releases the packet to default forwarding.
	Forward() error
	// Drop discards the packet.
	Drop()
}

// punted is a packet that a switch has sent to the controller.
type punted interface {
	Hold(time.Duration) (Held, error)
	Output([]openflow.Action) error
}

// packetIn implements punted by a *network.PacketIn.
type packetIn struct{ *network.PacketIn }

func (p packetIn) Hold(d time.Duration) (Held, error) { return p.PacketIn.Hold(d) }
