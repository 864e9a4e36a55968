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

// channel is the control channel to one switch: requests and their replies, changes with the
// barriers behind them, and packet-outs.
type channel struct {
	dpid         openflow.DatapathID // set when the switch has reported it
	conn         net.Conn
	out          *output
	timeout      time.Duration // of one request
	log          *slog.Logger
	logLimiter   *lograte.Limit
	done         chan struct{} // closed when the session ends
	xid          atomic.Uint32
	lastReceived atomic.Int64 // when the latest input arrived, in Unix nanoseconds
	evicted      atomic.Pointer[error]
	account      *account
	beforeWait   func() // called on the reader's goroutine before it waits for memory

	flowMods, groupMods, errors atomic.Uint64 // number of messages sent, and of errors received

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

// request is a message that waits for its reply. The parts of a reply collect in it until the last
// one has arrived.
type request struct {
	sent       time.Time
	answered   time.Time // when the reader saw the last part
	raw        [][]byte  // the parts as received
	parts      []openflow.Message
	account    *account
	bytes      int64 // memory that raw and parts have taken from account
	emptyParts int   // number of parts without content that announce further parts
	err        error
	done       chan struct{}
}

// release returns the memory of the reply's parts to the quota. The parts must not be used
// afterwards.
func (r *request) release() {
	r.account.release(r.bytes)
	r.bytes = 0
}

// decode decodes the parts of a complete reply. Decoded, they may take many times their size on
// the wire, so decode accounts for that memory.
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

// rawSize returns the memory that a part takes before it is decoded, in bytes.
func rawSize(raw []byte) int64 { return partOverhead + int64(cap(raw)) }

// call sends a message and returns its reply, which has one part, or the error with which the
// switch answered.
func (ch *channel) call(ctx context.Context, m openflow.Message) (openflow.Message, error) {
	r, err := ch.exchange(ctx, m)
	if err != nil {
		return nil, err
	}
	defer r.release()
	return r.parts[0], nil
}

// exchange sends a message and returns all parts of its reply. The caller releases the reply. Its
// sent and answered times are those of the system calls, so they do not include the time until a
// waiting goroutine is scheduled.
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

// send queues a control message and flushes the output.
func (ch *channel) send(m openflow.Message, xid uint32) error {
	b, err := m.AppendTo(ch.out.lockControl(), xid)
	ch.out.unlockControl(b)
	if err != nil {
		return err
	}
	ch.out.flush()
	return nil
}

// reply passes a message received at now to the request that waits for it. It runs on the reader's
// goroutine.
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
			ch.finish(xid, r, fmt.Errorf("%w: more than %d parts of a reply are empty", ErrBusy, maxEmptyParts), now)
		}
		return
	}
	if err := ch.addPart(xid, r, raw); err != nil {
		ch.logLimiter.Warn(ch.log, "discarding the reply of a switch", "switch", ch.dpid, "error", err)
		ch.finish(xid, r, err, now)
		return
	}
	if !openflow.MoreParts(raw) {
		ch.finish(xid, r, nil, now)
	}
}

// maxEmptyParts is the number of parts without content that a reply may have. Each costs time and
// brings the reply no nearer to its end.
const maxEmptyParts = 64

// addPart adds a copy of a part to a reply that is still awaited. It may wait for memory.
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
		return nil // the request was given up meanwhile
	}
	r.bytes += bytes
	r.raw = append(r.raw, part)
	return nil
}

// finish ends a request with an error, or with the reply if err is nil.
func (ch *channel) finish(xid uint32, r *request, err error, now time.Time) {
	ch.mu.Lock()
	delete(ch.requests, xid)
	ch.mu.Unlock()
	r.err, r.answered = err, now
	close(r.done)
}

// deliverError passes an error message of the switch to the request or batch that it answers, and
// reports whether there is one.
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

// ended reports whether the session has ended.
func (ch *channel) ended() bool {
	select {
	case <-ch.done:
		return true
	default:
		return false
	}
}

// errDown returns the error of a call on an ended session. It wraps ErrSwitchDown.
func (ch *channel) errDown() error { return fmt.Errorf("switch %v: %w", ch.dpid, ErrSwitchDown) }

// evict ends the session because of the memory it takes. It may be called while locks are held,
// because it does not wait: it interrupts the reader, which then ends the session.
func (ch *channel) evict(reason error) {
	ch.evicted.Store(&reason)
	_ = ch.conn.SetReadDeadline(time.Unix(1, 0))
}

// close ends the session with an error that is logged.
func (ch *channel) close(reason error) {
	ch.out.mu.Lock()
	ch.out.fail(reason)
	ch.out.mu.Unlock()
}

// endReason returns why the session ended. An error of the writing side comes first, because
// closing the connection is what then ends the reading side.
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

// packetOut sends a packet-out.
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

// queueOutput is queuePacketOut for the most frequent case of default forwarding: one packet out
// of one port.
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

// errOutputFull is returned for a packet-out that does not fit into the output queue.
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
	be.PutUint16(m[16:], 16) // length of the actions
	be.PutUint16(m[26:], 16) // length of the action; its type is zero
	be.PutUint32(m[28:], out)
	return append(append(b, m[:]...), data...)
}
