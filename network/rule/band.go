package rule

import "fmt"

// Band is a named range of priorities. Bands keep the owners apart: a rule of a
// higher band always wins over one of a lower band.
type Band uint8

// The bands, in ascending order of priority.
const (
	// BandMiss is for what no other rule matches; the core owns it.
	BandMiss Band = iota
	// BandForwarding carries default forwarding.
	BandForwarding
	// BandPunt carries the rules by which services ask for packets.
	BandPunt
	// BandService carries the rules of service sessions.
	BandService
	// BandSteering carries the rules along agent-to-agent paths.
	BandSteering
	// BandGuard carries discovery and security.
	BandGuard
)

// BandWidth is the number of priorities in each band: offsets run from 0 to
// BandWidth-1.
const BandWidth = 10000

// MaxGuardOffset is the highest offset of BandGuard, beyond which the 16 bits
// of a priority end.
const MaxGuardOffset = 65535 - 5*BandWidth

var bandNames = [...]string{BandMiss: "miss", BandForwarding: "forwarding", BandPunt: "punt", BandService: "service", BandSteering: "steering", BandGuard: "guard"}

// Base is the lowest priority of the band.
func (b Band) Base() uint16 { return uint16(b) * BandWidth }

// Valid reports whether b is a band that owners may use.
func (b Band) Valid() bool { return b >= BandForwarding && b <= BandGuard }

// String is the band's name.
func (b Band) String() string {
	if b <= BandGuard {
		return bandNames[b]
	}
	return fmt.Sprintf("band(%d)", uint8(b))
}

// OfPriority splits a wire priority into its band and offset. ok is false for
// priorities outside every band.
func OfPriority(priority uint16) (b Band, offset uint16, ok bool) {
	b = Band(priority / BandWidth)
	return b, priority % BandWidth, b.Valid()
}
