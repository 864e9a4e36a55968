package experiment

import (
	"slices"
	"testing"

	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// TestSweepsAreAllowed checks that the experiments ask for no more connections than the controller
// accepts: it would refuse the session in the middle of the sweep.
func TestSweepsAreAllowed(t *testing.T) {
	for name, sweep := range map[string]func(Scale) []int{"sos-chunk": chunkConnections, "sos-sockets": socketsConnections} {
		for _, scale := range []Scale{Quick, Normal, Full} {
			if most := slices.Max(sweep(scale)); most > agentapi.MaxConnections {
				t.Errorf("%s --scale %s asks for %d connections, at most %d are accepted", name, scale, most, agentapi.MaxConnections)
			}
		}
	}
}
