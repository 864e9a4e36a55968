package plugin

import (
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// Held is a packet that waits for a decision; a *network.Held.
type Held interface {
	// Output sends it on by actions.
	Output([]openflow.Action) error
	// Forward hands it to default forwarding.
	Forward() error
	// Drop gives it up.
	Drop()
}

// punted is a packet that a switch has sent up.
type punted interface {
	Hold(time.Duration) (Held, error)
	Output([]openflow.Action) error
}

// packetIn is a *network.PacketIn.
type packetIn struct{ *network.PacketIn }

func (p packetIn) Hold(d time.Duration) (Held, error) { return p.PacketIn.Hold(d) }
