// Made fressian-0.6.6.bin.gz beside it: java -cp fressian-0.6.6.jar WriteFressian.java | gzip -9n > fressian-0.6.6.bin.gz
// (org.fressian:fressian:0.6.6 of Maven Central), the way jepsen.store.fressian writes operations.

import java.io.ByteArrayOutputStream;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.fressian.FressianWriter;

class WriteFressian {
    static FressianWriter out;

    static void keyword(String name) throws Exception {
        out.writeTag("key", 2);
        out.writeObject(null);
        out.writeObject(name, true);
    }

    static void op(long index, long time, String type, Object process, String f, List<Object> value) throws Exception {
        out.writeTag("jepsen.history.Op", 7);
        out.writeInt(index);
        out.writeInt(time);
        keyword(type);
        out.writeObject(process);
        keyword(f);
        out.writeTag("vec", 1);
        out.writeObject(value);
        out.writeNull();
    }

    public static void main(String[] arguments) throws Exception {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        out = new FressianWriter(bytes);
        long[] numbers = {0, 63, 64, -1, -2, 4095, 4096, -4096, -4097, 524287, 524288, -524289, 33554431, 33554432,
            8589934591L, 8589934592L, 2199023255551L, 2199023255552L, 562949953421311L, 562949953421312L,
            Long.MAX_VALUE, Long.MIN_VALUE};
        for (long number : numbers) out.writeInt(number);
        for (double number : new double[] {0, 1, 1.5, -0.1}) out.writeDouble(number);
        out.writeFloat(0.5f);
        for (String text : new String[] {"", "seven77", "eighteen", "π 😀", "x".repeat(70000)}) out.writeString(text);
        out.writeBoolean(true);
        out.writeNull();
        Map<Object, Object> map = new HashMap<>();
        map.put("a", Arrays.asList(1, 2));
        out.writeObject(map);
        out.writeObject(new java.util.HashSet<Object>(Arrays.asList(7)));
        out.writeObject(new long[] {1, 2, 3});
        out.writeObject(java.math.BigInteger.ONE.shiftLeft(70));
        out.writeList(Arrays.asList(1, 2, 3, 4, 5, 6, 7, 8, 9));
        for (int i = 0; i < 40; i++) keyword("k" + i % 36);
        op(0, 1000, "invoke", 3L, "send", Arrays.asList("send", 5L, 17L));
        op(1, 123456789012L, "ok", 3L, "send", Arrays.asList("send", 5L, Arrays.asList(99L, 17L)));
        out.close();
        System.out.write(bytes.toByteArray());
        System.out.flush();
    }
}
