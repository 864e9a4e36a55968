package ingress

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// medium says whether a unit of a stream contains picture, sound or neither.
type medium int

const (
	noMedium medium = iota - 1 // data that ffmpeg needs in addition to picture and sound
	picture
	sound
	numMedia
)

// mediaSet says which media a stream has.
type mediaSet [numMedia]bool

// unit is a piece of a producer's stream in the form in which ffmpeg reads it.
type unit struct {
	medium medium
	// key reports whether a decoder can begin with the unit.
	key bool
	// begins reports whether a picture or a frame of sound begins with the unit.
	begins bool
	// setup reports whether the unit only configures a decoder, and is no picture or sound itself.
	setup bool
	data  []byte
}

// stream is the stream of a producer that has been permitted to publish. Only Close may be called
// concurrently with other methods.
type stream interface {
	// read returns the next units, which are valid until the next call. If the stream has ended,
	// the error says why. If nothing has arrived by the deadline, the error wraps
	// os.ErrDeadlineExceeded.
	read(deadline time.Time) ([]unit, error)
	// header returns the bytes that ffmpeg must read before any unit if it reads the given media.
	header(mediaSet) []byte
	// input returns ffmpeg's names of the stream's format and of the streams of picture and sound
	// in it; an empty name means the first one.
	input() (format, pictureMap, soundMap string)
	Close() error
}

// producer is a client that publishes at an address at which the gateway waits for producers.
type producer struct {
	from   string // address of the client
	stream stream
	// heardAt is when the last picture or sound arrived, in nanoseconds since 1970.
	heardAt atomic.Int64
	// replaced is the reason why the gateway has closed the stream, or nil.
	replaced atomic.Pointer[error]
}

// newProducer returns a producer that has connected now. It counts as silent only after connectGrace.
func newProducer(from string, s stream, now time.Time) *producer {
	p := &producer{from: from, stream: s}
	p.heard(now.Add(connectGrace - silenceTimeout))
	return p
}

// heard records that picture or sound has arrived.
func (p *producer) heard(now time.Time) { p.heardAt.Store(now.UnixNano()) }

// silent reports whether another producer may replace this one.
func (p *producer) silent(now time.Time) bool {
	return now.Sub(time.Unix(0, p.heardAt.Load())) > silenceTimeout
}

// end closes the stream for the given reason. A read of the stream then returns an error.
func (p *producer) end(why error) {
	p.replaced.CompareAndSwap(nil, &why)
	_ = p.stream.Close()
}

// why returns why a producer is gone, given the error of its stream.
func (p *producer) why(err error) error {
	if why := p.replaced.Load(); why != nil {
		err = *why
	}
	return fmt.Errorf("the producer at %s is gone: %w", p.from, err)
}

var (
	errReplaced = errors.New("another producer has taken its place")
	errEnded    = errors.New("it has ended its stream")
)
