package network

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/internal/lograte"
	"github.com/sluice-net/sluice/openflow"
)

// channel is what is said to one switch, and what it answers: requests and their replies,
// changes and the barriers behind them, packets.
type channel struct {
	dpid         openflow.DatapathID // set when the switch has said it
	conn         net.Conn
	out          *output
	timeout      time.Duration // of a request
	log          *slog.Logger
	logLimiter   *lograte.Limit
	done         chan struct{} // closed when the session ends
	xid          atomic.Uint32
	lastReceived atomic.Int64 // Unix nanoseconds of the last input
	evicted      atomic.Pointer[error]
	account      *account
	beforeWait   func() // is called on the reader before it waits for memory

	flowMods, groupMods, errors atomic.Uint64 // sent, and received

	mu       sync.Mutex
	requests map[uint32]*request
	batches  []*batch
}

func newChannel(conn net.Conn, c *Config, q *quota, l *lograte.Limit, now time.Time) *channel {
	ch := &channel{
		conn: conn, timeout: c.RequestTimeout, log: c.Log, logLimiter: l,
		done: make(chan struct{}), requests: map[uint32]*request{},
	}
	ch.account = q.open(ch.evict)
	ch.out = newOutput(conn, c, ch.account)
	ch.lastReceived.Store(now.UnixNano())
	return ch
}

// request waits for the reply to one message. A reply in several parts collects
// here until the last has come.
type request struct {
	sent       time.Time
	answered   time.Time // when the reader saw the last part
	raw        [][]byte  // the parts as they came
	parts      []openflow.Message
	account    *account
	bytes      int64 // that the account has for both
	emptyParts int   // parts that held nothing, and said that more follows
	err        error
	done       chan struct{}
}

// release gives back the memory that the parts of a reply take: whoever asked has no more
// use for them.
func (r *request) release() {
	r.account.release(r.bytes)
	r.bytes = 0
}

// decode decodes the parts of a reply that has come in whole. What they take then may be many
// times what they are on the wire.
func (r *request) decode() error {
	for i, raw := range r.raw {
		_, m, err := openflow.Decode(raw)
		if err != nil {
			return err
		}
		bytes := partOverhead + footprint(reflect.ValueOf(m))
		if err := r.account.wait(bytes); err != nil {
			return err
		}
		r.parts = append(r.parts, m)
		r.account.release(rawSize(raw))
		r.bytes += bytes - rawSize(raw)
		r.raw[i] = nil
	}
	return nil
}

// rawSize returns how many bytes a part takes that has not been decoded.
func rawSize(raw []byte) int64 { return partOverhead + int64(cap(raw)) }

// call sends a message and waits for its reply in one part, or the error
// the switch answered with.
func (ch *channel) call(ctx context.Context, m openflow.Message) (openflow.Message, error) {
	r, err := ch.exchange(ctx, m)
	if err != nil {
		return nil, err
	}
	defer r.release()
	return r.parts[0], nil
}

// exchange sends a message and waits for all parts of its reply. The caller releases it. It
// says how long it took: that is the time between the system calls, not until a waiting
// goroutine gets its turn.
func (ch *channel) exchange(ctx context.Context, m openflow.Message) (reply *request, err error) {
	ctx, cancel := context.WithTimeout(ctx, ch.timeout)
	defer cancel()
	xid := ch.xid.Add(1)
	r := &request{sent: time.Now(), account: ch.account, done: make(chan struct{})}
	ch.mu.Lock()
	ch.requests[xid] = r
	ch.mu.Unlock()
	defer func() {
		ch.mu.Lock()
		delete(ch.requests, xid)
		ch.mu.Unlock()
		if err != nil {
			r.release()
		}
	}()
	if err := ch.send(m, xid); err != nil {
		return nil, err
	}
	select {
	case <-r.done:
		if r.err != nil {
			return nil, fmt.Errorf("switch %v: %v: %w", ch.dpid, m.MsgType(), r.err)
		}
		if err := r.decode(); err != nil {
			return nil, fmt.Errorf("switch %v: reply to %v: %w", ch.dpid, m.MsgType(), err)
		}
		return r, nil
	case <-ch.done:
		return nil, ch.errDown()
	case <-ctx.Done():
		return nil, fmt.Errorf("switch %v: no reply to %v: %w", ch.dpid, m.MsgType(), ctx.Err())
	}
}

// send queues a control message and writes what is queued.
func (ch *channel) send(m openflow.Message, xid uint32) error {
	b, err := m.AppendTo(ch.out.lockControl(), xid)
	ch.out.unlockControl(b)
	if err != nil {
		return err
	}
	ch.out.flush()
	return nil
}

// reply hands a message that came now to whoever waits for it. It runs on the reader.
func (ch *channel) reply(raw []byte, now time.Time) {
	xid := openflow.XID(raw)
	ch.mu.Lock()
	r := ch.requests[xid]
	ch.mu.Unlock()
	if r == nil {
		return
	}
	if openflow.IsEmptyPart(raw) {
		if r.emptyParts++; r.emptyParts > maxEmptyParts {
			ch.finish(xid, r, fmt.Errorf("%w: more than %d parts of a reply hold nothing", ErrBusy, maxEmptyParts), now)
		}
		return
	}
	if err := ch.addPart(xid, r, raw); err != nil {
		ch.logLimiter.Warn(ch.log, "reply of a switch not kept", "switch", ch.dpid, "error", err)
		ch.finish(xid, r, err, now)
		return
	}
	if !openflow.MoreParts(raw) {
		ch.finish(xid, r, nil, now)
	}
}

// maxEmptyParts is how many parts of a reply may hold nothing: each costs time, and none
// brings the end nearer.
const maxEmptyParts = 64

// addPart adds a copy of a part to a reply that is still waited for. It may wait for memory.
func (ch *channel) addPart(xid uint32, r *request, part []byte) error {
	part = bytes.Clone(part)
	bytes := rawSize(part)
	if !ch.account.tryTake(bytes) {
		ch.beforeWait()
		if err := ch.account.wait(bytes); err != nil {
			return err
		}
	}
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.requests[xid] != r {
		ch.account.release(bytes)
		return nil // it has been given up
	}
	r.bytes += bytes
	r.raw = append(r.raw, part)
	return nil
}

func (ch *channel) finish(xid uint32, r *request, err error, now time.Time) {
	ch.mu.Lock()
	delete(ch.requests, xid)
	ch.mu.Unlock()
	r.err, r.answered = err, now
	close(r.done)
}

// deliverError hands an error of the switch to the request or batch it answers; false if
// nobody waits for it.
func (ch *channel) deliverError(xid uint32, e *openflow.Error, now time.Time) bool {
	ch.errors.Add(1)
	ch.mu.Lock()
	r := ch.requests[xid]
	for _, b := range ch.batches {
		if xid-b.first < b.last-b.first {
			if len(b.errs) < maxBatchErrors {
				b.errs = append(b.errs, batchError{int(xid - b.first), e})
			}
			ch.mu.Unlock()
			return true
		}
	}
	ch.mu.Unlock()
	if r == nil {
		return false
	}
	ch.finish(xid, r, errors.Join(ErrRefused, e), now)
	return true
}

// ended reports whether the session has.
func (ch *channel) ended() bool {
	select {
	case <-ch.done:
		return true
	default:
		return false
	}
}

func (ch *channel) errDown() error { return fmt.Errorf("switch %v: %w", ch.dpid, ErrSwitchDown) }

// evict makes the session end for the memory that it takes. It waits for nothing, whatever
// locks are held: the reader, which it interrupts, ends the session.
func (ch *channel) evict(reason error) {
	ch.evicted.Store(&reason)
	_ = ch.conn.SetReadDeadline(time.Unix(1, 0))
}

// close makes the session end, for a reason worth a log line.
func (ch *channel) close(reason error) {
	ch.out.mu.Lock()
	ch.out.fail(reason)
	ch.out.mu.Unlock()
}

// endReason tells why a session ended: what the writing side met counts first,
// because closing the connection is what then ends the reading side.
func (ch *channel) endReason(readErr error) error {
	if evicted := ch.evicted.Load(); evicted != nil {
		return *evicted
	}
	ch.out.mu.Lock()
	defer ch.out.mu.Unlock()
	if ch.out.err != nil {
		return ch.out.err
	}
	if errors.Is(readErr, io.EOF) {
		return errors.New("the switch closed the connection")
	}
	return readErr
}

func (ch *channel) packetOut(inPort uint32, actions []openflow.Action, data []byte) error {
	m := openflow.PacketOut{BufferID: openflow.NoBuffer, InPort: inPort, Actions: actions, Data: data}
	if err := ch.queuePacketOut(&m); err != nil {
		return err
	}
	ch.out.flush()
	return nil
}

// queuePacketOut queues a packet-out, which the next flush writes.
func (ch *channel) queuePacketOut(m *openflow.PacketOut) error {
	if ch.ended() {
		return ch.errDown()
	}
	b, ok := ch.out.lockPackets(len(m.Data) + 64)
	if !ok {
		return fmt.Errorf("packet-out to switch %v: %w", ch.dpid, errOutputFull)
	}
	b, err := m.AppendTo(b, ch.xid.Add(1))
	if !ch.out.unlockPackets(b) {
		return fmt.Errorf("packet-out to switch %v: %w", ch.dpid, errOutputFull)
	}
	return err
}

// queueOutput is queuePacketOut for what default forwarding sends most: one
// packet out of one port.
func (ch *channel) queueOutput(inPort, out uint32, data []byte) error {
	b, ok := ch.out.lockPackets(len(data) + 64)
	if !ok {
		return errOutputFull
	}
	if !ch.out.unlockPackets(appendOutput(b, ch.xid.Add(1), inPort, out, data)) {
		return errOutputFull
	}
	return nil
}

var errOutputFull = fmt.Errorf("%w: the switch's output queue is full", ErrBusy)

// appendOutput appends a packet-out with a single output action.
func appendOutput(b []byte, xid, inPort, out uint32, data []byte) []byte {
	const size = 24 + 16
	be := binary.BigEndian
	var m [size]byte
	m[0], m[1] = openflow.Version, byte(openflow.TypePacketOut)
	be.PutUint16(m[2:], uint16(size+len(data)))
	be.PutUint32(m[4:], xid)
	be.PutUint32(m[8:], openflow.NoBuffer)
	be.PutUint32(m[12:], inPort)
	be.PutUint16(m[16:], 16) // bytes of actions
	be.PutUint16(m[26:], 16) // bytes of the action, whose type is zero
	be.PutUint32(m[28:], out)
	return append(append(b, m[:]...), data...)
}
