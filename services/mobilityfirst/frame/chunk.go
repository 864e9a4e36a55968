package frame

// CSYN announces a chunk to the next hop.
type CSYN struct {
	// Hop is what the chunk is called between these two hops, and the VLAN tag of its frames.
	Hop uint32
	// Packets is how many Data frames it has.
	Packets uint32
}

// Type implements Frame.
func (*CSYN) Type() Type { return TypeCSYN }

// AppendTo implements Frame.
func (c *CSYN) AppendTo(b []byte) []byte {
	return appendWords(b, uint32(TypeCSYN), c.Hop, c.Packets)
}

func (c *CSYN) parse(b []byte) error { return words(b, &c.Hop, &c.Packets) }

// CACK answers a CSYN, and says which frames of the chunk have come.
type CACK struct {
	Hop, Packets uint32
	// Got has a bit for each frame that has come.
	Got Bitmap
}

// Type implements Frame.
func (*CACK) Type() Type { return TypeCACK }

// AppendTo implements Frame. What Got lacks has not come.
func (c *CACK) AppendTo(b []byte) []byte {
	b = appendWords(b, uint32(TypeCACK), c.Hop, c.Packets)
	want := bitmapSize(c.Packets)
	got := c.Got[:min(len(c.Got), want)]
	return append(append(b, got...), make([]byte, want-len(got))...)
}

func (c *CACK) parse(b []byte) error {
	if err := words(b, &c.Hop, &c.Packets); err != nil {
		return err
	}
	b = b[8:]
	if int64(len(b)) < int64(c.Packets)/8+1 {
		return ErrShort
	}
	c.Got = Bitmap(b[:bitmapSize(c.Packets)])
	return nil
}

// Bitmap has a bit for each of some packets: that of packet 0 is the lowest of the first byte.
type Bitmap []byte

// bitmapSize is how many bytes a CACK of so many packets has for them.
func bitmapSize(packets uint32) int { return int(packets/8) + 1 }

// NewBitmap is one for so many packets, of which none has come.
func NewBitmap(packets uint32) Bitmap { return make(Bitmap, bitmapSize(packets)) }

// Has says whether the bit of a packet is set; false for one beyond the last.
func (m Bitmap) Has(packet uint32) bool {
	return int64(packet/8) < int64(len(m)) && m[packet/8]&(1<<(packet%8)) != 0
}

// Set sets the bit of a packet, which has to be there.
func (m Bitmap) Set(packet uint32) { m[packet/8] |= 1 << (packet % 8) }

// Data carries a part of a chunk.
type Data struct {
	// Sequence is the frame's place in its chunk, from zero.
	Sequence uint32
	// Hop is what the chunk's CSYN has called it.
	Hop uint32
	// Payload is the part. That of the first frame begins with the chunk's RoutingHeader.
	Payload []byte
}

// Type implements Frame.
func (*Data) Type() Type { return TypeData }

// AppendTo implements Frame.
func (d *Data) AppendTo(b []byte) []byte {
	return append(appendWords(b, uint32(TypeData), uint32(len(d.Payload)), d.Sequence, d.Hop), d.Payload...)
}

func (d *Data) parse(b []byte) error {
	var size uint32
	if err := words(b, &size, &d.Sequence, &d.Hop); err != nil {
		return err
	}
	if b = b[12:]; int64(size) > int64(len(b)) {
		return ErrShort
	}
	d.Payload = b[:size]
	return nil
}
