package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// patience is how long a network may take to answer.
const patience = 5 * time.Second

func dial(network, address string) (net.Conn, error) {
	c, err := net.DialTimeout(network, address, patience)
	if err != nil {
		return nil, err
	}
	return c, c.SetDeadline(time.Now().Add(patience))
}

// fetch asks what listens at an address for a page of a host, and gives the page.
func fetch(args []string) (string, error) {
	c, err := dial("tcp", args[0])
	if err != nil {
		return "", err
	}
	defer c.Close()
	if _, err := fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", args[1]); err != nil {
		return "", err
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	page, err := io.ReadAll(res.Body)
	return strings.TrimSpace(string(page)), err
}

// echo sends a word, and wants it back.
func echo(args []string) (string, error) {
	c, err := dial("tcp", args[0])
	if err != nil {
		return "", err
	}
	defer c.Close()
	return "", returned(c)
}

// datagram sends one, and does not look after it.
func datagram(args []string) (string, error) {
	c, err := dial("udp", args[0])
	if err != nil {
		return "", err
	}
	defer c.Close()
	_, err = c.Write([]byte("stockade"))
	return "", err
}

func returned(c net.Conn) error {
	word := []byte("stockade\n")
	if _, err := c.Write(word); err != nil {
		return err
	}
	got := make([]byte, len(word))
	if _, err := io.ReadFull(c, got); err != nil {
		return err
	}
	if !bytes.Equal(got, word) {
		return fmt.Errorf("%q came back", got)
	}
	return nil
}

// hold is echo again and again over one connection, for ever: it prints that it holds, and in the end how it broke.
func hold(args []string) (string, error) {
	c, err := dial("tcp", args[0])
	if err != nil {
		return "", err
	}
	defer c.Close()
	for n := 0; ; n++ {
		if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
			return "", err
		}
		if err := returned(c); err != nil {
			return "", err
		}
		if n%10 == 0 {
			fmt.Println("held", n)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// resolve asks for the addresses of a name.
func resolve(args []string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	addrs, err := net.DefaultResolver.LookupHost(ctx, args[0])
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		if dns.IsNotFound {
			return "no such name", nil
		}
		return "no answer", nil
	}
	return strings.Join(addrs, " "), err
}

// floodConnections connects to a socket again and again, and keeps some of the connections, for ever.
func floodConnections(args []string) (string, error) {
	var held [64]net.Conn
	for i := 0; ; i = (i + 1) % len(held) {
		c, err := net.Dial("unix", args[0])
		if err != nil {
			continue
		}
		if old := held[i]; old != nil {
			old.Close()
		}
		held[i] = c
	}
}
