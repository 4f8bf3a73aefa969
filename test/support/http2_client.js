// A client on node's http2. Gets a URL, prints what came as JSON.
'use strict';
const http2 = require('http2');

const session = http2.connect(process.argv[2]);

function ask(headers, body) {
  return new Promise((resolve, reject) => {
    const stream = session.request(headers, { endStream: body === undefined });
    const answer = { chunks: [], trailers: {} };
    stream.on('response', (fields) => { answer.status = fields[':status']; answer.cookies = fields['set-cookie']; });
    stream.on('trailers', (fields) => { answer.trailers = fields; });
    stream.on('data', (chunk) => answer.chunks.push(chunk));
    stream.on('error', reject);
    stream.on('close', () => {
      const whole = Buffer.concat(answer.chunks);
      delete answer.chunks;
      answer.size = whole.length;
      if (whole.length < 1000) answer.body = whole.toString();
      resolve(answer);
    });
    if (body !== undefined) stream.end(body);
  });
}

function cancel() {
  return new Promise((resolve) => {
    const stream = session.request({ ':path': '/large' });
    stream.on('response', () => stream.close(http2.constants.NGHTTP2_CANCEL));
    stream.on('error', () => {});
    stream.on('close', () => resolve(stream.rstCode));
  });
}

function websocket() {
  return new Promise((resolve, reject) => {
    const stream = session.request({ ':method': 'CONNECT', ':protocol': 'websocket', ':path': '/ws' });
    stream.on('response', () => stream.write('ping'));
    stream.on('data', (chunk) => { stream.end(); resolve(chunk.toString()); });
    stream.on('error', reject);
  });
}

session.on('remoteSettings', async () => {
  const plain = await ask({ ':path': '/plain' });
  const echo = await ask({ ':method': 'POST', ':path': '/echo' }, Buffer.alloc(500000, 'z'));
  const pieces = await ask({ ':path': '/pieces' });
  const many = (await Promise.all(Array.from({ length: 50 }, () => ask({ ':path': '/plain' })))).filter((one) => one.status === 200).length;
  const cancelled = await cancel();
  const ws = await websocket();
  session.close(() => console.log(JSON.stringify({ plain, echo, pieces, many, cancelled, ws })));
});
