package content

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"sync/atomic"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

// NearestKey is a key that everybody has. Caches that are there for all nearby attach its name: the network leads those who
// ask it to the nearest. Who it is need not be trusted: contents are what their names say, and who gives nothing is passed
// over. It sees who gets what.
func NearestKey() ed25519.PrivateKey {
	seed := sha256.Sum256([]byte("sluice: whoever keeps contents for those nearby, 1"))
	return ed25519.NewKeyFromSeed(seed[:])
}

// Nearest is the name of NearestKey. It is of no use beyond the links that a host is on.
func Nearest() frame.GUID { return record.NameOfOwner(NearestKey()) }

// sources are the names by which a content is got, in turn: the next, when one does not give what it is asked for.
type sources struct {
	names []frame.GUID
	now   atomic.Int32
}

// try asks for a piece until it is the one, by each name in turn, and says whether that was not in time at first.
func (p *Peer) try(ctx context.Context, by *sources, content frame.GUID, piece uint32, check func([]byte) error) (b []byte, late bool, err error) {
	for {
		now := by.now.Load()
		last, often := int(now) == len(by.names)-1, 1
		if last {
			often = tries
		}
		b, again, err := p.tryBy(ctx, by.names[now], content, piece, often, check)
		if err == nil || last || ctx.Err() != nil || errors.Is(err, hostapi.ErrClosed) {
			return b, late || again, err
		}
		late = true
		by.now.CompareAndSwap(now, now+1)
	}
}
