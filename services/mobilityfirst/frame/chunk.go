package frame

// CSYN announces a chunk to the next hop.
type CSYN struct {
	// Hop identifies the chunk between the two ends of a link, and is the VLAN tag of its frames.
	Hop uint32
	// Packets is the number of the chunk's Data frames.
	Packets uint32
}

// Type implements Frame.
func (*CSYN) Type() Type { return TypeCSYN }

// AppendTo implements Frame.
func (c *CSYN) AppendTo(b []byte) []byte {
	return appendUint32s(b, uint32(TypeCSYN), c.Hop, c.Packets)
}

func (c *CSYN) parse(b []byte) error { return readUint32s(b, &c.Hop, &c.Packets) }

// CACK answers a CSYN, and tells which frames of the chunk have been received.
type CACK struct {
	Hop, Packets uint32
	// Received has a bit for each received frame.
	Received Bitmap
}

// Type implements Frame.
func (*CACK) Type() Type { return TypeCACK }

// AppendTo implements Frame. It appends zeros for the bits that Received lacks.
func (c *CACK) AppendTo(b []byte) []byte {
	b = appendUint32s(b, uint32(TypeCACK), c.Hop, c.Packets)
	want := bitmapSize(c.Packets)
	got := c.Received[:min(len(c.Received), want)]
	return append(append(b, got...), make([]byte, want-len(got))...)
}

func (c *CACK) parse(b []byte) error {
	if err := readUint32s(b, &c.Hop, &c.Packets); err != nil {
		return err
	}
	b = b[8:]
	if int64(len(b)) < int64(c.Packets)/8+1 {
		return ErrShort
	}
	c.Received = Bitmap(b[:bitmapSize(c.Packets)])
	return nil
}

// Bitmap has a bit for each packet of a chunk: the lowest bit of the first byte is that of packet
// 0.
type Bitmap []byte

// bitmapSize returns the length in bytes of the bitmap in a CACK.
func bitmapSize(packets uint32) int { return int(packets/8) + 1 }

// NewBitmap returns a bitmap for this number of packets, of which none has been received.
func NewBitmap(packets uint32) Bitmap { return make(Bitmap, bitmapSize(packets)) }

// Has reports whether the bit of a packet is set; it returns false for a packet beyond the last.
func (m Bitmap) Has(packet uint32) bool {
	return int64(packet/8) < int64(len(m)) && m[packet/8]&(1<<(packet%8)) != 0
}

// Set sets the bit of a packet, which must be within the bitmap.
func (m Bitmap) Set(packet uint32) { m[packet/8] |= 1 << (packet % 8) }

// Data carries a part of a chunk.
type Data struct {
	// Sequence is the frame's position in its chunk, from zero.
	Sequence uint32
	// Hop identifies the chunk as its CSYN does.
	Hop uint32
	// Payload is the part of the chunk. The first frame's payload begins with the chunk's
	// RoutingHeader.
	Payload []byte
}

// Type implements Frame.
func (*Data) Type() Type { return TypeData }

// AppendTo implements Frame.
func (d *Data) AppendTo(b []byte) []byte {
	return append(appendUint32s(b, uint32(TypeData), uint32(len(d.Payload)), d.Sequence, d.Hop), d.Payload...)
}

func (d *Data) parse(b []byte) error {
	var size uint32
	if err := readUint32s(b, &size, &d.Sequence, &d.Hop); err != nil {
		return err
	}
	if b = b[12:]; int64(size) > int64(len(b)) {
		return ErrShort
	}
	d.Payload = b[:size]
	return nil
}
