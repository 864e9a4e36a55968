// Package media implements the house format of Cinema's gateways: H.264 of the constrained
// baseline profile in RTP (RFC 6184, packetization mode 1) and Opus in RTP (RFC 7587), both
// and their sender reports in one flow of UDP datagrams for each channel.
//
// [Parse] parses one datagram. A [Cache] keeps the packets of pictures that have arrived since the last
// key frame, so that a new viewer need not wait for the next key frame. A [Splicer] makes one stream
// for a viewer from the channels that the viewer watches one after the other. An [Assembler] turns that
// stream into complete pictures.
//
// Nothing here opens a socket or reads a clock: the caller passes the time. Start reading at
// Splicer in splice.go.
package media
