package host

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// Anybody can send a datagram that says it comes from another's address. So a far host takes chunks in such streams alone
// of whose numbers it has heard together with a token, which it had sent to that address before.

// tokenFor is how long a token is good, and up to as long again.
const tokenFor = time.Minute

// token is what who asks from a place has to give back. Nothing is kept for it.
func (h *Host) token(at place, from, to frame.GUID, now time.Time) uint64 {
	mac := hmac.New(sha256.New, h.secret[:])
	mac.Write(at.mac[:])
	mac.Write(from[:])
	mac.Write(to[:])
	mac.Write(binary.BigEndian.AppendUint64(nil, uint64(now.UnixNano()/int64(tokenFor))))
	return max(binary.BigEndian.Uint64(mac.Sum(nil)), 1)
}

// confirmed takes it that a far name receives where it has asked from. What comes again changes nothing.
func (h *Host) confirmed(at place, c *frame.PathConfirm, now time.Time) {
	n := h.neighbours.find(c.Source, at)
	if !at.link.isFar() || n == nil || h.names[c.Destination] == nil {
		return
	}
	if c.Token == h.token(at, c.Source, c.Destination, now) || c.Token == h.token(at, c.Source, c.Destination, now.Add(-tokenFor)) {
		n.session(c.Destination, c.Stream.Session(), now).confirmed = true
	}
}

// isConfirmed says whether chunks may come in a session to a name.
func (n *neighbour) isConfirmed(to frame.GUID, number uint64) bool {
	return slices.ContainsFunc(n.sessions, func(s *session) bool { return s.to == to && s.number == number && s.confirmed })
}
