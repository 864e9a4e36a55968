package delayline

import "time"

// These are the sizes of the blocks that hold frames. One read needs at most a super-packet and a
// header for each of its segments.
const (
	blockSize = 1 << 20
	maxRead   = vnetLen + 65536 + 64
	maxNeed   = maxRead + 128<<10
)

// record describes one frame in flight. Its bytes are head and, if it was cut out of a
// super-packet, body; both are in the same block.
type record struct {
	arrived int64 // when it came to the queue
	begins  int64 // when its first bit leaves the queue
	departs int64 // when its last bit has left the queue
	due     int64 // when it reaches the other end
	block   int32
	head    uint32
	headLen uint32
	body    uint32
	bodyLen uint32
	wire    uint32 // bytes on the wire, of all its packets
	packets uint32
}

// queued returns the sum of the times that the record's packets wait in the queue. They come
// together, and each waits until those before it have left.
func (r *record) queued() time.Duration {
	packets := int64(r.packets)
	return time.Duration(packets*(r.begins-r.arrived) + (packets-1)*(r.departs-r.begins)/2)
}

// fifo is an ordered queue of frames. They are read directly into blocks, and written from there;
// blocks are used again.
type fifo struct {
	blocks  [][]byte
	refs    []int32 // number of records in each block
	free    []int32
	current int32
	used    int // bytes used in the current block

	ring  []record
	first int
	count int
}

func newFIFO() *fifo {
	f := &fifo{ring: make([]record, 64)}
	f.current = f.newBlock()
	return f
}

func (f *fifo) newBlock() int32 {
	if n := len(f.free); n > 0 {
		b := f.free[n-1]
		f.free = f.free[:n-1]
		return b
	}
	f.blocks = append(f.blocks, make([]byte, blockSize))
	f.refs = append(f.refs, 0)
	return int32(len(f.blocks) - 1)
}

// space returns room for one read. The caller takes as much of it as it needs.
func (f *fifo) space() []byte {
	if f.refs[f.current] == 0 {
		f.used = 0
	}
	if blockSize-f.used < maxNeed {
		f.current = f.newBlock()
		f.used = 0
	}
	return f.blocks[f.current][f.used:]
}

// rest returns the unused part of the current block.
func (f *fifo) rest() []byte { return f.blocks[f.current][f.used:] }

// take marks n bytes of the room as used and returns their offset in the block.
func (f *fifo) take(n int) uint32 {
	at := f.used
	f.used += n
	return uint32(at)
}

// push appends a record whose bytes are in the current block.
func (f *fifo) push(r record) {
	if f.count == len(f.ring) {
		f.grow()
	}
	r.block = f.current
	f.refs[f.current]++
	f.ring[(f.first+f.count)&(len(f.ring)-1)] = r
	f.count++
}

func (f *fifo) grow() {
	bigger := make([]record, 2*len(f.ring))
	n := copy(bigger, f.ring[f.first:])
	copy(bigger[n:], f.ring[:f.first])
	f.ring, f.first = bigger, 0
}

// at returns the i-th record from the front.
func (f *fifo) at(i int) *record { return &f.ring[(f.first+i)&(len(f.ring)-1)] }

// bytes returns the two parts of a record's frame.
func (f *fifo) bytes(r *record) (head, body []byte) {
	b := f.blocks[r.block]
	return b[r.head : r.head+r.headLen], b[r.body : r.body+r.bodyLen]
}

// pop removes the front record and frees its block with the last of its records.
func (f *fifo) pop() {
	b := f.ring[f.first].block
	f.first = (f.first + 1) & (len(f.ring) - 1)
	f.count--
	f.refs[b]--
	if f.refs[b] == 0 && b != f.current {
		f.free = append(f.free, b)
	}
}
