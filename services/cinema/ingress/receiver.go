package ingress

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/clientaddr"
	"github.com/sluice-net/sluice/internal/tasks"
)

const (
	// handshakeTimeout bounds the time from a client's connection until it may publish. It includes
	// the time in which the client reads the answers.
	handshakeTimeout = 10 * time.Second
	// maxClients and maxSourceClients bound the clients that are connected to a receiver at the
	// same time, in total and from one client's address. Only one of them publishes.
	maxClients, maxSourceClients = 64, 8
)

var errWrongKey = errors.New("wrong stream key")

// receiver waits at an address for the producers of a channel's source. One of them publishes at a
// time.
type receiver struct {
	ch     *channel
	place  waitingPlace
	ffmpeg *ffmpegSource
	guard  *passwordChecker // bounds wrong keys
	tasks  *tasks.Group     // goroutines of the receiver and its clients
	next   chan *producer   // holds the current producer until its stream is read

	mu      sync.Mutex
	current *producer
}

// openers holds the functions that start to wait for producers, by scheme. The waiting ends with the
// receiver's tasks.
var openers = map[string]func(*receiver) error{"rtmp": openRTMP, "srt": openSRT, "udp": openUDP}

// openReceiver starts to wait for producers. The caller ends it with close.
func (f *ffmpegSource) openReceiver() (*receiver, error) {
	r := &receiver{
		ch: f.ch, place: *f.source.waits, ffmpeg: f, guard: newPasswordChecker(), tasks: tasks.New(), next: make(chan *producer, 1),
	}
	if err := openers[f.source.scheme](r); err != nil {
		r.tasks.Stop()
		return nil, err
	}
	return r, nil
}

// close ends all clients, and waits until everything has stopped.
func (r *receiver) close() {
	r.tasks.Stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current != nil {
		_ = r.current.stream.Close()
	}
}

// checkKey returns an error unless the key of a client from an address is the one that the channel's
// source wants. As with passwords, wrong keys are bounded for each client's address and in total.
func (r *receiver) checkKey(from netip.Addr, key string) error {
	if r.place.key == "" {
		return nil
	}
	source := clientaddr.Source(from)
	if !r.guard.allowAttempt(source, false, time.Now()) {
		return errTooManyWrong
	}
	if subtle.ConstantTimeCompare([]byte(key), []byte(r.place.key)) == 0 {
		return errWrongKey
	}
	r.guard.forgive(source)
	return nil
}

// vacant returns errPublished if another producer publishes and is not silent.
func (r *receiver) vacant(now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current != nil && !r.current.silent(now) {
		return errPublished
	}
	return nil
}

// publish makes a client the channel's producer, and replaces a silent one. If it returns nil, the
// receiver is responsible for closing the client's stream.
func (r *receiver) publish(p *producer) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tasks.Context().Err() != nil {
		return context.Cause(r.tasks.Context())
	}
	if r.current != nil {
		if !r.current.silent(time.Now()) {
			return errPublished
		}
		r.current.end(errReplaced)
	}
	select {
	case <-r.next: // the former producer is replaced before its stream was read
	default:
	}
	r.current = p
	r.next <- p
	return nil
}

// forget closes a producer's stream. If it is the current producer, another one may then publish.
func (r *receiver) forget(p *producer) {
	r.mu.Lock()
	if r.current == p {
		r.current = nil
	}
	r.mu.Unlock()
	_ = p.stream.Close()
}

// refuse records that a client is refused.
func (r *receiver) refuse(from netip.Addr, err error) {
	r.ch.recordRefusal(from, err)
}

// receive waits for producers, and relays the stream of one after the other to ffmpeg until ctx ends. It
// returns an error at once if it cannot wait at the source's address.
func (f *ffmpegSource) receive(ctx context.Context) error {
	r, err := f.openReceiver()
	if err != nil {
		return fmt.Errorf("wait for a producer at %v: %w", f.source.waits.at, err)
	}
	defer r.close()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case p := <-r.next:
			f.ch.setProducer(p.from)
			began := time.Now()
			err := (&relay{ffmpeg: f, producer: p}).run(ctx)
			r.forget(p)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			f.ch.recordSourceError(err)
			if time.Since(began) < stableTime && tasks.Sleep(ctx, f.firstBackoff) != nil {
				return ctx.Err()
			}
		}
	}
}
