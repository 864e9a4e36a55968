package packet

// CompleteChecksum finishes the transport checksum of a frame that its sender has
// left to the network card: such a frame bears the sum of the pseudo-header alone.
// It reports whether it has changed the frame. Any other checksum is left as it
// is, wrong ones included, so that what was damaged on its way stays known as that.
func CompleteChecksum(frame []byte, h *Headers) bool {
	at := 0
	switch {
	case h.Has(TCP):
		at = h.L4 + 16
	case h.Has(UDP):
		at = h.L4 + 6
	}
	if at == 0 || h.IsFragment() || h.End > len(frame) || at+2 > h.End {
		return false
	}
	segment := frame[h.L4:h.End]
	addresses := pseudo(h.Src, h.Dst, h.Proto, len(segment))
	if be.Uint16(frame[at:]) != ^Checksum(addresses) || Checksum(Sum(segment, addresses)) == 0 {
		return false
	}
	be.PutUint16(frame[at:], 0)
	check := Checksum(Sum(segment, addresses))
	if check == 0 && h.Has(UDP) { // zero would say that there is none
		check = 0xffff
	}
	be.PutUint16(frame[at:], check)
	return true
}
