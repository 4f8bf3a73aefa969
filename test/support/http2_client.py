# A client on python3-h2. Reads a scenario's name and a port, prints what came as JSON.
import json
import socket
import sys
import h2.config
import h2.connection
import h2.events
import h2.settings


class Client:
    def __init__(self, port):
        self.sock = socket.create_connection(('127.0.0.1', port))
        self.conn = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding='utf-8'))
        self.conn.initiate_connection()
        self.answers = {}
        self.flush()

    def flush(self):
        self.sock.sendall(self.conn.data_to_send())

    def request(self, verb, path, body=None, trailers=None, **more):
        stream = self.conn.get_next_available_stream_id()
        headers = [(':method', verb), (':scheme', 'http'), (':path', path), (':authority', 'python')]
        headers += [(name.replace('_', '-'), value) for name, value in more.items()]
        self.answers[stream] = {'body': b'', 'done': False, 'info': [], 'trailers': None}
        self.conn.send_headers(stream, headers, end_stream=body is None)
        if body is not None:
            self.send_body(stream, body, trailers)
        self.flush()
        return stream

    def send_body(self, stream, body, trailers):
        while body:
            room = min(self.conn.local_flow_control_window(stream), self.conn.max_outbound_frame_size, len(body))
            if room == 0:
                self.flush()
                self.read()
                continue
            last = room == len(body) and not trailers
            self.conn.send_data(stream, body[:room], end_stream=last)
            body = body[room:]
        if trailers:
            self.conn.send_headers(stream, trailers, end_stream=True)

    def read(self):
        data = self.sock.recv(65536)
        if not data:
            raise EOFError
        for event in self.conn.receive_data(data):
            self.take(event)
        self.flush()

    def take(self, event):
        answer = self.answers.get(getattr(event, 'stream_id', None))
        if isinstance(event, h2.events.InformationalResponseReceived):
            answer['info'].append(dict(event.headers))
        elif isinstance(event, h2.events.ResponseReceived):
            answer['headers'] = dict(event.headers)
        elif isinstance(event, h2.events.TrailersReceived):
            answer['trailers'] = dict(event.headers)
        elif isinstance(event, h2.events.DataReceived):
            answer['body'] += event.data
            self.conn.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.StreamEnded):
            answer['done'] = True
        elif isinstance(event, h2.events.StreamReset):
            answer['reset'] = int(event.error_code)
            answer['done'] = True

    def wait(self, *streams):
        while not all(self.answers[stream]['done'] for stream in streams):
            self.read()
        return [self.answers[stream] for stream in streams]


def everything(client):
    return client.wait(
        client.request('GET', '/plain'),
        client.request('POST', '/echo', b'x' * 300000),
        client.request('POST', '/echo', b'with trailers', trailers=[('x-sum', '42')]),
        client.request('GET', '/pieces'),
        client.request('GET', '/large'),
        client.request('GET', '/hints'),
        client.request('HEAD', '/plain'))


def many(client):
    return client.wait(*[client.request('GET', f'/plain?{i}') for i in range(90)])


def websocket(client):
    while not client.conn.remote_settings.get(h2.settings.SettingCodes.ENABLE_CONNECT_PROTOCOL, 0):
        client.read()
    stream = client.conn.get_next_available_stream_id()
    client.answers[stream] = {'body': b'', 'done': False, 'info': [], 'trailers': None}
    client.conn.send_headers(stream, [(':method', 'CONNECT'), (':protocol', 'websocket'), (':scheme', 'http'),
                                      (':path', '/ws'), (':authority', 'python'), ('sec-websocket-version', '13')])
    client.conn.send_data(stream, b'hello')
    client.flush()
    while client.answers[stream]['body'] != b'HELLO':
        client.read()
    client.conn.end_stream(stream)
    client.flush()
    return client.wait(stream)


def show(answer):
    body = answer['body']
    answer['body'] = body.decode() if len(body) < 100 else {'size': len(body), 'sum': sum(body)}
    return answer


print(json.dumps([show(answer) for answer in globals()[sys.argv[1]](Client(int(sys.argv[2])))]))
