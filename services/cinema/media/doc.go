// Package media implements the house format of Cinema's gateways: H.264 of the constrained
// baseline profile in RTP (RFC 6184, packetization mode 1) and Opus in RTP (RFC 7587), both
// and their sender reports in one flow of UDP datagrams for each channel.
//
// [Parse] parses one datagram. A [Cache] keeps what has arrived since the last key frame, so
// that a new viewer need not wait for the next one. A [Splicer] makes one stream, for one
// viewer, from channels that follow each other. An [Assembler] turns that stream into complete
// pictures.
//
// Nothing here opens a socket or reads a clock: the caller passes the time. Start reading at
// Splicer in splice.go.
package media
