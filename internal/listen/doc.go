// Package listen opens sockets for connections, and accepts these whatever happens meanwhile.
//
// [New] makes a listener patient; [Unix] opens a socket on the machine that not everybody may use.
package listen
